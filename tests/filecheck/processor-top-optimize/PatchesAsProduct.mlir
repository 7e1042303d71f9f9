// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=F32},processor-top-optimize' %s | filecheck %s
//
// A Conv of few channels whose large windows lie side by side becomes a MatMul with a row for each window.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x3x32x32xf32>) -> tensor<1x4x2x2xf32> {
    %x = "top.Input"(%in) : (tensor<1x3x32x32xf32>) -> tensor<1x3x32x32xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<4x3x16x16xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [16, 16], strides = [16, 16], pads = [0, 0, 0, 0]} : (tensor<1x3x32x32xf32>, tensor<4x3x16x16xf32>, none) -> tensor<1x4x2x2xf32> loc("y")
    func.return %y : tensor<1x4x2x2xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x3x32x32xf32>) -> tensor<1x3x32x32xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<4x3x16x16xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Reshape"(%x) {shape = [1 : i64, 3 : i64, 2 : i64, 16 : i64, 2 : i64, 16 : i64]}{{.*}} -> tensor<1x3x2x16x2x16xf32> loc("y_0")
// CHECK-NEXT: %y_1 = "top.Permute"(%y) {order = [0 : i64, 2 : i64, 4 : i64, 1 : i64, 3 : i64, 5 : i64]}{{.*}} -> tensor<1x2x2x3x16x16xf32> loc("y_2")
// CHECK-NEXT: %y_2 = "top.Reshape"(%y_1) {shape = [1 : i64, 4 : i64, 768 : i64]}{{.*}} -> tensor<1x4x768xf32> loc("y_3")
// CHECK-NEXT: %y_3 = "top.Weight"() : () -> tensor<4x768xf32> loc("y_4")
// CHECK-NEXT: %y_4 = "top.MatMul"(%y_2, %y_3, %none) {left_transpose = false, right_transpose = true{{.*}} -> tensor<1x4x4xf32> loc("y_6")
// CHECK-NEXT: %y_5 = "top.Permute"(%y_4) {order = [0 : i64, 2 : i64, 1 : i64]}{{.*}} -> tensor<1x4x4xf32> loc("y_7")
// CHECK-NEXT: %y_6 = "top.Reshape"(%y_5) {shape = [1 : i64, 4 : i64, 2 : i64, 2 : i64]}{{.*}} -> tensor<1x4x2x2xf32> loc("y")
// CHECK-NEXT: func.return %y_6 : tensor<1x4x2x2xf32>
