// RUN: tpusim opt -p 'calibrate{data=random:2},import-calibration-table' %s | filecheck %s
//
// The ranges of tensors are measured by samples; the pass after it puts them into the types.

func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
  %y = "top.Abs"(%x) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
  func.return %y : tensor<2x4x6xf32>
}

// CHECK:      module.state = "TOP_CALIBRATED"
// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6x!quant.calibrated<f32<-2.0658767:2.0658767>>> loc("x")
// CHECK-NEXT: %y = "top.Abs"(%x) {{.*}} -> tensor<2x4x6x!quant.calibrated<f32<-2.0658767:2.0658767>>> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6x!quant.calibrated<f32<-2.0658767:2.0658767>>>
