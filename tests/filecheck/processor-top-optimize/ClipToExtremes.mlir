// RUN: tpusim opt -p 'processor-assign{chip=bm1684 mode=F32},processor-top-optimize' %s | filecheck %s
//
// A Clip becomes a MaxConst and a MinConst.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.Clip"(%x) {min = -1.000000e+00 : f64, max = 1.000000e+00 : f64} : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.MaxConst"(%x) {const_val = -1.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y_max")
// CHECK-NEXT: %y_1 = "top.MinConst"(%y) {const_val = 1.000000e+00 : f64{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y_1 : tensor<2x4x6xf32>
