// RUN: tpusim opt -p 'softmax_correction{data=random:2}' %s | filecheck %s
//
// A Softmax of an attention is divided by the mean of its largest values, and the product after it is multiplied.

func.func @main(%in1: tensor<2x4x6xf32>, %in2: tensor<2x6x5xf32>) -> tensor<2x4x5xf32> {
  %x = "top.Input"(%in1) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %z = "top.Input"(%in2) : (tensor<2x6x5xf32>) -> tensor<2x6x5xf32> loc("z")
  %a = "top.Softmax"(%x) {axis = 2} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
  %none = "top.None"() : () -> none
  %y = "top.MatMul"(%a, %z, %none) {left_transpose = false, right_transpose = false} : (tensor<2x4x6xf32>, tensor<2x6x5xf32>, none) -> tensor<2x4x5xf32> loc("y")
  func.return %y : tensor<2x4x5xf32>
}

// CHECK:      module.state = "TOP_F32"
// CHECK:      %x = "top.Input"(%in1) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %z = "top.Input"(%in2) : (tensor<2x6x5xf32>) -> tensor<2x6x5xf32> loc("z")
// CHECK-NEXT: %a = "top.Softmax"(%x) {axis = 2 : si32}{{.*}} -> tensor<2x4x6xf32> loc("a")
// CHECK-NEXT: %0 = "top.Weight"() : () -> tensor<2x1x1xf32> loc("a_Smc_Inv_Weight")
// CHECK-NEXT: %1 = "top.Mul"(%a, %0) {tpusim.fixed_threshold = 1.000000e+00 : f64}{{.*}} -> tensor<2x4x6xf32> loc("a_Smc_Inv_Mul")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.MatMul"(%1, %z, %none) {left_transpose = false, right_transpose = false{{.*}} -> tensor<2x4x5xf32> loc("y")
// CHECK-NEXT: %2 = "top.Weight"() : () -> tensor<2x1x1xf32> loc("a_Smc_Weight")
// CHECK-NEXT: %3 = "top.Mul"(%y, %2) {{.*}}tpusim.framework = "y"{{.*}} -> tensor<2x4x5xf32> loc("y_Smc_Mul")
// CHECK-NEXT: func.return %3 : tensor<2x4x5xf32>
